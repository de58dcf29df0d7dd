"""One model and all that may be done with it; `model_service` first. No HTTP here."""
