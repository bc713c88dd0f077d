"""What is asked of the machines before anything is started, and what is wrong with them."""
