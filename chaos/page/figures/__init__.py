"""Values → figures, as specifications for Vega and Vega-Lite: the page, SVG and PNG are drawn from the same ones."""
