"""docs/findings.md: each figure in a section is in the RESULTS.md that the section names."""

import re

import pytest
from conftest import HERE, STUDIES

FINDINGS = (HERE.parent / "docs/findings.md").read_text()
SECTIONS = [
    section for section in FINDINGS.split("\n## ") if "/RESULTS.md" in section.split("\n## ")[0]
]
# Figures with a unit or a sign. Plain counts and parameters (1 MB, 10 Mbit/s, two clients) are not
# findings.
FIGURE = r"[-+]?\d[\d,.]*\d(?= (?:us|ms|ns|s|%|times|calls)\b| %)|[-+]?\d(?= (?:us|ms|ns|%)| %)|\d[\d,]* of [\d,]*\d"


def test_every_report_has_a_section():
    named = {study for study in STUDIES if f"({study}" in FINDINGS or f"/{study}/" in FINDINGS}
    assert named == set(STUDIES)


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.splitlines()[0])
def test_figures_are_those_of_the_results(section: str):
    studies = re.findall(r"experiments/(\w+)/RESULTS\.md", section)
    results = " ".join((HERE / study / "RESULTS.md").read_text() for study in studies)
    found = section.split("*Found*")[1]
    figures = re.findall(FIGURE, " ".join(found.split()))
    assert len(figures) >= 4
    for figure in figures:
        alone = rf"(?<![\d.,]){re.escape(figure.lstrip('-+'))}(?![\d]|[.,]\d)"
        assert re.search(alone, results), f"{figure} is not in the results of {studies}"
