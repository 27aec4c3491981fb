"""Results of runs: one frame of scores, its means and differences, and the pages, cards and bundles made of them.

`sources.read_runs` reads folders, bundles and CSV files into one long frame. `aggregate.means` averages it over
languages and seeds, `compare.baseline_differences` compares encoders, with the intervals of `difference`.
`report.report`, `card.write_model_card`, `claims.against_papers` and `bundle.write_bundle` show the same numbers.
"""
