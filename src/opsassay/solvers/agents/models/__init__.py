"""Models that agents ask: scripted and replayed ones, without network and key, and those behind an endpoint."""

from __future__ import annotations

from opsassay.core.schema.tool_session import ToolSpec
from opsassay.solvers.agents.models.base import Message, Model, ModelError, Reply, ToolRequest
from opsassay.solvers.agents.models.named import model_named

__all__ = ["Message", "Model", "ModelError", "Reply", "ToolRequest", "ToolSpec", "model_named"]
