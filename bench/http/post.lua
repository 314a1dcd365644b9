-- One request again and again: the method, path and body that are passed.

local again

function init(args)
  again = wrk.format(args[1], args[2], { ["Content-Type"] = "application/json" }, args[3])
end

function request()
  return again
end

function done(summary, latency)
  local failed = summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.status + summary.errors.timeout
  io.write(string.format('\n{"requests": %d, "failed": %d, "us": %d, "p50_us": %d, "p99_us": %d}\n',
    summary.requests, failed, summary.duration, latency:percentile(50), latency:percentile(99)))
end
