-- Claim a message, then settle it: what an answer names is settled before anything else is claimed. The arguments are a
-- claim's path and body, the pattern that finds a message in its answer, and a settlement's method, path and body, in
-- which %s stands for what was found. One thread only: connections share the list of what is claimed.

local json = { ["Content-Type"] = "application/json" }
local claimed = {}
local claim, pattern, method, path, body
settled = 0

function init(args)
  claim = wrk.format("POST", args[1], json, args[2])
  pattern, method, path, body = args[3], args[4], args[5], args[6]
end

local function filled(text, value)
  return (string.gsub(text, "%%s", value))
end

function request()
  local found = table.remove(claimed)
  if found == nil then
    return claim
  end
  settled = settled + 1
  return wrk.format(method, filled(path, found), json, filled(body, found))
end

function response(status, headers, text)
  local found = string.match(text, pattern)
  if found ~= nil then
    claimed[#claimed + 1] = found
  end
end

local crew = {}

function setup(thread)
  crew[#crew + 1] = thread
end

function done(summary, latency)
  local failed = summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.status + summary.errors.timeout
  io.write(string.format('\n{"requests": %d, "settled": %d, "failed": %d, "us": %d, "p50_us": %d, "p99_us": %d}\n',
    summary.requests, crew[1]:get("settled"), failed, summary.duration, latency:percentile(50), latency:percentile(99)))
end
