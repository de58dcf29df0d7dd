"""Exact boosting on bins with rounded derivatives: an update often changes no leaf."""
