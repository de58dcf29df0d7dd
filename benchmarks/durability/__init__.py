"""What durability costs: mutations a second, the time to recover, and the pauses while a snapshot is written."""
