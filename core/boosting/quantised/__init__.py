"""Exact boosting on bins with rounded derivatives: many updates change no leaf."""
