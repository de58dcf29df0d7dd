"""One model and all that may be done with it; `service.py` first. No HTTP here."""
