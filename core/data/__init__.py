"""Types of columns and labels, and the one door through which data enters: everything is checked here."""
