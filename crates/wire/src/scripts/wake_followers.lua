-- wake_followers.lua: Wake the followers of a partition.
--
-- Purpose: One of several listeners claims first, and the others follow: they claim rarely. The first calls this if more
--   timers are due than it can run. Each claimer that ends calls this too: its entry is deleted, and the followers wake if
--   it was the last claimer or the standby.
-- Parts: prelude, timers
-- Flags: allow-oom
-- KEYS 1 meta, 2 due, 3 claimers
-- ARGV 1 wire version, 2 number of partitions, 3 wake-up channel,
--   4 ID of the claimer that ends, or ''
-- Returns: secs, micros, why listeners could not be notified (or '')
-- Invariants: Nothing depends on the message: followers also claim on their own, a few seconds late.

local claimers, claimer = KEYS[3], ARGV[4]
if claimer ~= '' then
  local had_entry = redis.call('HDEL', claimers, claimer) == 1
  local was_last = had_entry and redis.call('HGET', claimers, 'last_claimer') == claimer
  local was_standby = sub(redis.call('HGET', claimers, 'standby') or '', 9) == claimer
  if was_standby then redis.call('HDEL', claimers, 'standby') end
  if was_last or was_standby then publish('l0') end
elseif not meta[3] then
  local head = math.floor(tonumber(head_of(KEYS[2])) or math.huge)
  if head <= now then publish('l' .. string.format('%.0f', head)) end
end
return { secs, micros, wake_up_error }
