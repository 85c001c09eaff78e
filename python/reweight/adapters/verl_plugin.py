"""What verl imports by the entry point verl.plugins, in each of its processes."""

from .verl import watch

watch()
