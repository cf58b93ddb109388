"""One remote attempt: `tidemill attempt` fetches its order, runs the code in a child process, and reports back."""
