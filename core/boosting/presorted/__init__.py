"""Exact boosting without quantization, on presorted columns (iGBDT)."""
