-- sync_policy.lua: how an attached topic's keys are treated.
--
-- Purpose: one policy for all listeners of a topic, whoever was first: that of the highest revision. Partition 0 has it.
-- Parts: prelude
-- Flags: allow-oom
-- KEYS 1 meta
-- ARGV 1 wire version, 2 number of partitions, 3 wake-up channel,
--   4 revision of the caller's policy, 5 this policy
-- Returns: secs, micros, revision, policy, as they stand now
-- Invariants: a policy gives way only to one of a higher revision.

local stands = redis.call('HMGET', KEYS[1], 'revision', 'policy')
if not stands[2] or (tonumber(stands[1] or '') or 0) < tonumber(ARGV[4]) then
  stands = { ARGV[4], ARGV[5] }
  redis.call('HSET', KEYS[1], 'revision', stands[1], 'policy', stands[2])
end
return { secs, micros, stands[1] or '0', stands[2] }
