"""People set right what a biased judge says: a run, thirty labels, and both decisions.

The labels that people gave are in labels.jsonl. A table of what is asked next is filled in from
there, as one would do it by hand in a notebook.
"""

import asyncio
import json
from pathlib import Path

from bestarm_agent.study import Archive, Study

HERE = Path(__file__).parent
GIVEN = {
    (label["example"], label["answer"]): label["score"]
    for label in map(json.loads, (HERE / "labels.jsonl").read_text().splitlines())
}


async def main() -> None:
    """Run the study, label ten examples at a time until it is proved who is best."""
    async with Study.open(HERE / "study.yaml") as study:
        standing = await study.run()
    print(standing.decision.said[0])
    async with Archive(HERE / "runs" / "runs.sqlite").labelling(standing.run_id) as labelling:
        while rows := await labelling.rows(10):
            for row in rows:
                row["score"] = GIVEN[row["example"], row["answer"]]
            await labelling.put_rows(rows)
        print((await labelling.stand()).said[0])


asyncio.run(main())
