"""Data files: CSV and Parquet, read as what an estimator's ``fit`` takes."""
