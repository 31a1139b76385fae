-- overview.lua: Count the entries of a partition.
--
-- Purpose: Operators and alarms read from it how many timers wait, are due or should have ended, and why a partition is
--   paused or closed.
-- Parts: (none)
-- Flags: no-writes
-- KEYS 1 meta, 2 due, 3 quarantine, 4 dead, 5 tracked, 6 timers, 7 tried
-- ARGV 1 a span ahead of now in which timers are counted, in ms, 2 another one
-- Returns: secs, micros, field v of meta ('': there is no meta), number of partitions (''), why it is paused (''), dead
--   letters trimmed, members of due, of quarantine, of dead, tracked keys, lowest score of due and quarantine (''), members
--   of due below now, below the end of the first span, of the second; timers whose first deadline has passed, without those
--   that run for the first time, the oldest of these deadlines, in ms (''), when the last dead letter was trimmed, in ms
--   ('')
-- Invariants: The work does not depend on the number of entries. Claimed timers are counted by the ends of their leases.

local time = redis.call('TIME')
local secs, micros = tonumber(time[1]), tonumber(time[2])
local now = secs * 1000 + math.floor(micros / 1000)
local stored = redis.call('HMGET', KEYS[1], 'v', 'partitions', 'paused', 'trimmed', 'trimmed_at')
local due, quarantine, timers, tried = KEYS[2], KEYS[3], KEYS[6], KEYS[7]
local first = redis.call('ZRANGE', due, '0', '0', 'WITHSCORES')
local quarantine_head = redis.call('ZRANGE', quarantine, '0', '0', 'WITHSCORES')
if quarantine_head[2] and (not first[2] or tonumber(quarantine_head[2]) < tonumber(first[2])) then
  first = quarantine_head
end
local function below(zset, at) return redis.call('ZCOUNT', zset, '-inf', '(' .. string.format('%.0f', at)) end

-- A timer that is due now and was tried before is in the index and twice in `tried`, and counts once.
local overdue = below(due, now)
local undelivered, oldest = overdue + below(quarantine, now), now
if tried then
  undelivered = undelivered - redis.call('ZCOUNT', tried, '0', '(' .. string.format('%.0f', now))
    + redis.call('ZCOUNT', tried, '(-' .. string.format('%.0f', now), '(0')
  local oldest_tried = redis.call('ZRANGE', tried, '(0', '-inf', 'BYSCORE', 'REV', 'LIMIT', '0', '1', 'WITHSCORES')[2]
  oldest = oldest_tried and -tonumber(oldest_tried) or now
end
-- If the head is the end of a lost lease, its record has an earlier deadline.
if first[2] and tonumber(first[2]) < now then
  local record = timers and redis.call('HGET', timers, first[1]) or ''
  oldest = math.min(oldest, #record >= 17 and struct.unpack('>I8', record, 10) or tonumber(first[2]))
end

return {
  secs, micros, stored[1] or '', stored[2] or '', stored[3] or '', tonumber(stored[4]) or 0,
  redis.call('ZCARD', due), redis.call('ZCARD', quarantine), redis.call('ZCARD', KEYS[4]), redis.call('HLEN', KEYS[5]),
  first[2] or '', overdue, below(due, now + tonumber(ARGV[1])), below(due, now + tonumber(ARGV[2])),
  undelivered, undelivered > 0 and string.format('%.0f', oldest) or '', stored[5] or '',
}
