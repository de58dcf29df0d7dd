"""Exact boosting on bins with rounded derivatives: an update mostly changes no tree."""
