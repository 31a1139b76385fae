-- page.lua: Read a page of a partition's entries in the order of time.
--
-- Purpose: Operators read waiting and claimed timers, dead letters or tracked keys, each with its value, from a position in
--   one index on. Nothing is changed.
-- Parts: (none)
-- Flags: no-writes
-- KEYS 1 due, 2 quarantine, 3 timers, 4 timer_states, 5 dead, 6 dead_letters, 7 checks, 8 tracked
-- ARGV 1 'due', 'quarantine', 'dead' or 'checks', 2 a score, 3 'at' to begin with it, 'behind' to begin with the next higher
--   one, or 'after' to begin after a member with this score, 4 that member, 5 how many at most (1,000), 6 how many bytes of
--   each record, 7 how many bytes in all are read
-- Returns: secs, micros, '1' if there may be more, else '0', then per member: member, score, record, dead letter or entry of
--   a tracked key, cut, or nil if there is none; its length uncut; state (nil: there is none, or it is in the dead letter)
-- Invariants: The work does not depend on the number of entries. If the member is gone, the page begins with all members of
--   its score: the caller skips those that it has read.

local sub = string.sub
local index_name, score, start, member = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local most, keep_bytes, room = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local due, quarantine, timers, timer_states, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local dead_letters, checks, tracked = KEYS[6], KEYS[7], KEYS[8]
local zset = ({ due = due, quarantine = quarantine, dead = dead, checks = checks })[index_name]
local time = redis.call('TIME')

local function start_rank()
  if start == 'behind' then return redis.call('ZCOUNT', zset, '-inf', score) end
  if start == 'after' then
    local present_score = redis.call('ZSCORE', zset, member)
    if present_score and tonumber(present_score) == tonumber(score) then return redis.call('ZRANK', zset, member) + 1 end
  end
  return redis.call('ZCOUNT', zset, '-inf', '(' .. score)
end

local read = {}
function read.due(key)
  local record = redis.call('HGET', timers, key)
  return record, record and sub(record, 1, keep_bytes), redis.call('HGET', timer_states, key)
end
read.quarantine = read.due
-- The value of a dead letter has the state, behind its length, before the record.
function read.dead(name)
  local dead_letter = redis.call('HGET', dead_letters, name)
  if not dead_letter then return end
  local state = #dead_letter >= 14 and struct.unpack('>I4', dead_letter, 11) or 0
  return dead_letter, sub(dead_letter, 1, 14 + state + keep_bytes)
end
function read.checks(key)
  local entry = redis.call('HGET', tracked, key)
  return entry, entry
end

local from = start_rank()
local page = redis.call('ZRANGE', zset, from, from + most - 1, 'WITHSCORES')
local out, taken = { tonumber(time[1]), tonumber(time[2]), '0' }, 0
for i = 1, #page, 2 do
  if room <= 0 then break end
  local whole, cut, state = read[index_name](page[i])
  room = room - #page[i] - (whole and #whole or 0) - (state and #state or 0)
  local n = #out
  out[n + 1], out[n + 2], out[n + 3] = page[i], page[i + 1], cut or false
  out[n + 4], out[n + 5] = whole and #whole or 0, state or false
  taken = taken + 1
end
if taken == most or taken < #page / 2 then out[3] = '1' end
return out
