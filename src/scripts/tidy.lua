-- tidy.lua: one step of the slow repair.
--
-- Purpose: find records that no index names, or only for a day that never comes, states and kept armings whose
--   record is gone, and lanes and tombstones that have had their day.
-- Parts: prelude, afterlife
-- Flags: allow-oom
-- KEYS 1 meta, 2 due, 3 solo, 4 rec, 5 run, 6 next, 7 tomb, 8 lanes
-- ARGV 1 wire version, 2 number of partitions, 3 wake-up channel,
--   4 which hash to scan: 'rec', 'run', 'next' or 'lanes', 5 cursor,
--   6 how many to look at, 7 lease in ms
-- Returns: secs, micros, next cursor, how many were put right

local which, lease, mended = ARGV[4], tonumber(ARGV[7]), 0
local LANE_AGE = 86400000
local LIMIT = 8796093022208 -- 2^43 ms: no deadline lies beyond, so such a score would never come up

local function is_placed(key)
  local score = redis.call('ZSCORE', due, key) or redis.call('ZSCORE', solo, key)
  return score and tonumber(score) < LIMIT
end

local mend = {}

-- A held record gets a lease from now on: its holder may be alive.
function mend.rec(key, record)
  if is_placed(key) then return end
  local state = redis.call('HGET', run, key)
  local at, lost = now, 0
  if state and #state >= 25 then
    lost = byte(state, 15)
    at = byte(state, 2) == 1 and now + lease or struct.unpack('>I8', state, 18)
  end
  if (not state or at == 0) and #record >= 17 then at = struct.unpack('>I8', record, 10) end
  if at == 0 then at = now end
  if at >= LIMIT then at = now end -- its claim will bury it
  redis.call('ZADD', lost >= SUSPECT and solo or due, at, key)
  sooner(at)
  return true
end

function mend.run(key)
  if redis.call('HEXISTS', rec, key) == 1 then return end
  redis.call('HDEL', run, key)
  return true
end

function mend.next(key)
  if redis.call('HEXISTS', rec, key) == 1 then return end
  redis.call('HDEL', run, key) -- must not speak for another arming
  succeed(key, 0, '')
  return true
end

-- A slot speaks for its listener's last claim, and is of use for minutes.
function mend.lanes(lane, slot)
  if lane == 'by' then return end -- names the lane of the last claim
  if #slot >= 16 and now - struct.unpack('>I8', slot, 9) < LANE_AGE then return end
  redis.call('HDEL', KEYS[8], lane)
  return true
end

local hashes = { rec = rec, run = run, next = nxt, lanes = KEYS[8] }
local head = head_of(due)
local page = redis.call('HSCAN', hashes[which], ARGV[5], 'COUNT', ARGV[6])
for i = 1, #page[2], 2 do
  if mend[which](page[2][i], page[2][i + 1]) then mended = mended + 1 end
end
wake(head)
return { secs, micros, page[1], mended }
