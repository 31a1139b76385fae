-- overview.lua: how a partition is.
--
-- Purpose: counts by state, what is due and when, what should have ended and has not, and why it is paused, for people
--   and for alarms.
-- Parts: (none)
-- Flags: no-writes
-- KEYS 1 meta, 2 due, 3 quarantine, 4 dead, 5 tracked, 6 timers, 7 tried
-- ARGV 1 how far ahead it counts what is due, in ms, 2 how far besides
-- Returns: secs, micros, what meta says in the place of the wire version ('': there is no meta), the number of
--   partitions there (''), why it is paused (''), letters trimmed, members of due, of quarantine, of dead, keys
--   enrolled, lowest score of due and quarantine (''), members of due below now, below the first of these, below the
--   second; timers whose first deadline has passed, less those that run for the first time, the oldest of these
--   deadlines, in ms (''), when the last letter was trimmed, in ms ('')
-- Invariants: the work does not depend on how much there is. Running timers stand in due with the ends of their leases.

local time = redis.call('TIME')
local secs, micros = tonumber(time[1]), tonumber(time[2])
local now = secs * 1000 + math.floor(micros / 1000)
local said = redis.call('HMGET', KEYS[1], 'v', 'partitions', 'paused', 'trimmed', 'trimmed_at')
local due, quarantine, timers, tried = KEYS[2], KEYS[3], KEYS[6], KEYS[7]
local first = redis.call('ZRANGE', due, '0', '0', 'WITHSCORES')
local suspect = redis.call('ZRANGE', quarantine, '0', '0', 'WITHSCORES')
if suspect[2] and (not first[2] or tonumber(suspect[2]) < tonumber(first[2])) then first = suspect end
local function below(zset, at) return redis.call('ZCOUNT', zset, '-inf', '(' .. string.format('%.0f', at)) end

-- What is due now and was tried before stands in both, and counts once.
local overdue = below(due, now)
local undelivered, oldest = overdue + below(quarantine, now), now
if tried then
  undelivered = undelivered - redis.call('ZCOUNT', tried, '0', '(' .. string.format('%.0f', now))
    + redis.call('ZCOUNT', tried, '(-' .. string.format('%.0f', now), '(0')
  local longest = redis.call('ZRANGE', tried, '(0', '-inf', 'BYSCORE', 'REV', 'LIMIT', '0', '1', 'WITHSCORES')[2]
  oldest = longest and -tonumber(longest) or now
end
-- Behind the end of a lost lease there is an earlier deadline, in its record.
if first[2] and tonumber(first[2]) < now then
  local record = timers and redis.call('HGET', timers, first[1]) or ''
  oldest = math.min(oldest, #record >= 17 and struct.unpack('>I8', record, 10) or tonumber(first[2]))
end

return {
  secs, micros, said[1] or '', said[2] or '', said[3] or '', tonumber(said[4]) or 0,
  redis.call('ZCARD', due), redis.call('ZCARD', quarantine), redis.call('ZCARD', KEYS[4]), redis.call('HLEN', KEYS[5]),
  first[2] or '', overdue, below(due, now + tonumber(ARGV[1])), below(due, now + tonumber(ARGV[2])),
  undelivered, undelivered > 0 and string.format('%.0f', oldest) or '', said[5] or '',
}
