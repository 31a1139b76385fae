-- page.lua: a page of what a partition holds, in the order of time.
--
-- Purpose: what stands behind a place in one of its indexes, with what is kept of each, for people to look at.
-- Parts: (none)
-- Flags: no-writes
-- KEYS 1 due, 2 quarantine, 3 timers, 4 timer_states, 5 dead, 6 dead_letters, 7 checks, 8 tracked
-- ARGV 1 'due', 'quarantine', 'dead' or 'checks', 2 a score, 3 'at' to begin with it, 'behind' to begin with the next
--   higher one, or 'after' to begin after a member that had it, 4 that member, 5 how many (1,000), 6 how many bytes of
--   each record, 7 how many bytes in all are read
-- Returns: secs, micros, '1' if there may be more, else '0', then per member: member, score, record, letter or
--   watch, cut, or nil where there is none; how long that is uncut; state (nil: there is none, or it is in the letter)
-- Invariants: the work does not depend on how much there is. Where the member is gone, this begins with all that have
--   its score: the caller knows which of them come before it.

local sub = string.sub
local which, score, how, member = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local most, keep, room = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local due, quarantine, timers, timer_states, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local dead_letters, checks, tracked = KEYS[6], KEYS[7], KEYS[8]
local zset = ({ due = due, quarantine = quarantine, dead = dead, checks = checks })[which]
local time = redis.call('TIME')

local function place()
  if how == 'behind' then return redis.call('ZCOUNT', zset, '-inf', score) end
  if how == 'after' then
    local now_at = redis.call('ZSCORE', zset, member)
    if now_at and tonumber(now_at) == tonumber(score) then return redis.call('ZRANK', zset, member) + 1 end
  end
  return redis.call('ZCOUNT', zset, '-inf', '(' .. score)
end

local read = {}
function read.due(key)
  local record = redis.call('HGET', timers, key)
  return record, record and sub(record, 1, keep), redis.call('HGET', timer_states, key)
end
read.quarantine = read.due
-- Of a letter the state comes first, behind its length.
function read.dead(name)
  local letter = redis.call('HGET', dead_letters, name)
  if not letter then return end
  local state = #letter >= 14 and struct.unpack('>I4', letter, 11) or 0
  return letter, sub(letter, 1, 14 + state + keep)
end
function read.checks(key)
  local says = redis.call('HGET', tracked, key)
  return says, says
end

local from = place()
local page = redis.call('ZRANGE', zset, from, from + most - 1, 'WITHSCORES')
local out, taken = { tonumber(time[1]), tonumber(time[2]), '0' }, 0
for i = 1, #page, 2 do
  if room <= 0 then break end
  local whole, cut, state = read[which](page[i])
  room = room - #page[i] - (whole and #whole or 0) - (state and #state or 0)
  local n = #out
  out[n + 1], out[n + 2], out[n + 3] = page[i], page[i + 1], cut or false
  out[n + 4], out[n + 5] = whole and #whole or 0, state or false
  taken = taken + 1
end
if taken == most or taken < #page / 2 then out[3] = '1' end
return out
