"""Docker Swarm: the slot of a replica, as the index of WORKER_HOSTS.

A stack file sets `SWARM_TASK_SLOT: "{{.Task.Slot}}"`; slots count from 1.
Source: https://docs.docker.com/reference/cli/docker/service/create/#create-services-using-templates
"""

from __future__ import annotations

from entrypoint.sources.formats.index import IndexVariable

TASK_SLOT = IndexVariable("SWARM_TASK_SLOT", first=1)
