-- wake_followers.lua: say what is left to others.
--
-- Purpose: those who leave what comes due to whoever leads come at once, where more is
--   due than that one can run, or when it or the standby ends.
-- Parts: prelude, timers
-- Flags: allow-oom
-- KEYS 1 meta, 2 due, 3 claimers
-- ARGV 1 wire version, 2 number of partitions, 3 wake-up channel,
--   4 the slot that ends, or ''
-- Returns: secs, micros, why nobody could be told (or '')
-- Invariants: nothing depends on this being heard.

local claimers, slot = KEYS[3], ARGV[4]
if slot ~= '' then
  local stood = redis.call('HDEL', claimers, slot) == 1
  local leads = stood and redis.call('HGET', claimers, 'last_claimer') == slot
  local stands_by = sub(redis.call('HGET', claimers, 'standby') or '', 9) == slot
  if stands_by then redis.call('HDEL', claimers, 'standby') end
  if leads or stands_by then publish('l0') end
elseif not meta[3] then
  local head = math.floor(tonumber(head_of(KEYS[2])) or math.huge)
  if head <= now then publish('l' .. string.format('%.0f', head)) end
end
return { secs, micros, wake_up_error }
