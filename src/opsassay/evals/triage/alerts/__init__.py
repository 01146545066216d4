"""What is known of the alerts of a storm, and what answers say of them."""
