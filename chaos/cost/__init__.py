"""What recovery and saves cost: measured from the history, predicted in closed form, and which interval follows."""
