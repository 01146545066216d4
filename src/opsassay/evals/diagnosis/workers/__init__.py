"""Worker processes: Python methods and agents run in forks of one template process."""
