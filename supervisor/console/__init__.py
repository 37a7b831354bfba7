"""The console: a process of its own that reads run directories, answers over HTTP and files requests. Nothing imports it."""
