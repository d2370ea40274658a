"""Makes the bucket of docker-compose.yml if it is not there. The job itself never creates one."""

from __future__ import annotations

import os
from pathlib import Path

from pyarrow.fs import S3FileSystem

store = S3FileSystem(
    endpoint_override=os.environ["S3_ENDPOINT"],
    access_key=os.environ["S3_ACCESS_KEY"],
    secret_key=Path(os.environ["S3_SECRET_KEY_FILE"]).read_text(encoding="utf-8").strip(),
    region="us-east-1",
    allow_bucket_creation=True,
)
store.create_dir(os.environ["S3_BUCKET"])
print(f"the bucket {os.environ['S3_BUCKET']} is there")
