"""What operators watch: metrics, traces, the access log, and streams of events."""
