"""Models in the forms of other programs and for people: LightGBM's text, tables, JSON, text, drawings. Only reads."""
