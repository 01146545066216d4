function envoy_on_request(handle)
  if asked.method then
    handle:headers():replace(":method", asked.method)
  end
end

function envoy_on_response(handle)
  if asked.wait_ms then
    local until_then = {[":method"] = "GET", [":path"] = "/", [":authority"] = "timer", ["x-envoy-fault-delay-request"] = asked.wait_ms}
    handle:httpCall("timer", until_then, nil, {timeout_ms = asked.limit_ms, trace_sampled = false})
  end
  if asked.status then
    handle:headers():replace(":status", asked.status)
  end
  if asked.empty then
    handle:body(true):setBytes("")
  end
end
