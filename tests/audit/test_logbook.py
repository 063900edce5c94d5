"""The log entry by entry beside the log read anew at each entry, on logs of any kind."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.audit.evidence import Choose, Entry, Fence, Publish, Ref
from chaos.audit.facts import Process
from chaos.audit.logbook import Growth, ancestry, lineage, publications

_OWNER = Process(1, 1, "h")


@st.composite
def logs(draw: st.DrawFn) -> list[Entry]:
    """Fences in and out of turn, choices of anything that was published, publications by whoever."""
    entries: list[Entry] = []
    refs: list[Ref | None] = [None, Ref("s9", "d9", 9)]
    attempt = -1
    for seq in range(draw(st.integers(0, 14))):
        kind = draw(st.sampled_from(["fence", "fence", "choose", "publish", "publish", "publish"]))
        if kind == "fence":
            attempt = draw(st.sampled_from([attempt + 1, attempt + 1, max(0, attempt), 0]))
            entries.append(Fence(seq, attempt, "c", _OWNER))
            continue
        of = max(0, draw(st.sampled_from([attempt, attempt, attempt, attempt - 1])))
        if kind == "choose":
            entries.append(Choose(seq, of, draw(st.sampled_from(refs)), ()))
        else:
            step = draw(st.integers(1, 3))
            publish = Publish(seq, of, f"s{step}", f"d{draw(st.integers(1, 2))}", step)
            entries.append(publish)
            refs.append(publish.ref)
    return entries


@settings(max_examples=150, deadline=None)
@given(logs())
def test_each_prefix_has_the_lineage_that_it_has_alone(entries: list[Entry]) -> None:
    growth = Growth()
    for end, entry in enumerate(entries, 1):
        growth.add(entry)
        known = entries[:end]
        assert tuple(growth.lineage()) == lineage(known)
        assert growth.names == {publish.name for publish in publications(known)}
        for publish in publications(known):
            assert (publish, *growth.before(publish)) == ancestry(known, publish)
