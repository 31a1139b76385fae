-- list_names.lua: List the names of a partition's entries in pages.
--
-- Purpose: Operators and repartitioning go through all entries of one kind, without their values; or through the claimed
--   timers whose leases have not ended.
-- Parts: (none)
-- Flags: no-writes
-- KEYS 1 due, 2 quarantine, 3 timers, 4 timer_states, 5 queued, 6 tombstones, 7 dead, 8 dead_letters
-- ARGV 1 'due', 'quarantine', 'timers', 'timer_states', 'queued', 'dead', 'dead_letters', or 'tombstones' for those of the
--   last three minutes, or 'running' for the keys whose leases have not ended, 2 cursor (0: the first page), 3 how many,
--   roughly
-- Returns: cursor of the next page, or 0, then the names
-- Invariants: An entry that exists from the first page to the last is named at least once, and perhaps twice.

local due, quarantine, timers, timer_states, queued = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local tombstones, dead, dead_letters = KEYS[6], KEYS[7], KEYS[8]
local which, cursor, most = ARGV[1], ARGV[2], ARGV[3]
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
-- Older tombstones are not listed, because a call is repeated for two minutes at most.
local LISTED_FOR = 180000

local out = { 0 }
local function add(page, width)
  for i = 1, #page, width do out[#out + 1] = page[i] end
end

if which == 'tombstones' then
  local page = redis.call('ZRANGE', tombstones, now - LISTED_FOR, '+inf', 'BYSCORE', 'LIMIT', cursor, most)
  if #page == tonumber(most) then out[1] = tonumber(cursor) + #page end
  add(page, 1)
  return out
end

if which == 'running' then
  local page = redis.call('HSCAN', timer_states, cursor, 'COUNT', most)
  out[1] = page[1]
  for i = 1, #page[2], 2 do
    local key = page[2][i]
    if string.byte(page[2][i + 1], 2) == 1 then
      local ends = redis.call('ZSCORE', quarantine, key) or redis.call('ZSCORE', due, key)
      if ends and tonumber(ends) >= now then out[#out + 1] = key end
    end
  end
  return out
end

local zset = ({ due = due, quarantine = quarantine, dead = dead })[which]
local hash = ({ timers = timers, timer_states = timer_states, queued = queued, dead_letters = dead_letters })[which]
local page, width = nil, 2
if zset then
  page = redis.call('ZSCAN', zset, cursor, 'COUNT', most)
else
  -- Servers without NOVALUES return the values too, which may be large: their pages are smaller.
  page = redis.pcall('HSCAN', hash, cursor, 'COUNT', most, 'NOVALUES')
  if page.err then
    page = redis.call('HSCAN', hash, cursor, 'COUNT', math.min(tonumber(most), 100))
  else
    width = 1
  end
end
out[1] = page[1]
add(page[2], width)
return out
