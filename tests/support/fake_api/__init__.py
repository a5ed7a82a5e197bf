"""A server that speaks the wire protocols of OpenAI and Anthropic over real loopback sockets.

It answers chat completions, plain completions and responses in OpenAI's way and messages in
Anthropic's, with the bodies, token counts, ids and rate-limit headers of the real ones. A function
decides what each model says; a script decides which requests meet which fault; token buckets
enforce rate limits and count who exceeds them; and all that was received is kept.

::

    async with FakeApi(answer=quality({"good": 0.9, "poor": 0.4}), script=storm(0.2)) as api:
        client = AsyncOpenAI(base_url=api.openai_url, api_key=api.key)

``python -m tests.support.fake_api`` runs it as a process of its own.
"""

from tests.support.fake_api.answers import echo as echo
from tests.support.fake_api.answers import quality as quality
from tests.support.fake_api.calls import Answer as Answer
from tests.support.fake_api.calls import Call as Call
from tests.support.fake_api.calls import Said as Said
from tests.support.fake_api.faults import Fault as Fault
from tests.support.fake_api.faults import Script as Script
from tests.support.fake_api.faults import once as once
from tests.support.fake_api.faults import storm as storm
from tests.support.fake_api.limits import Rates as Rates
from tests.support.fake_api.server import FakeApi as FakeApi
from tests.support.fake_api.server import FakeModel as FakeModel
from tests.support.fake_api.server import Received as Received
from tests.support.fake_api.threads import in_thread as in_thread
