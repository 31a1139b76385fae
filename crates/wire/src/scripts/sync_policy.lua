-- sync_policy.lua: Agree on the policy of an attached topic.
--
-- Purpose: All listeners of an attached topic use one policy for its keys: that of the highest revision. It is stored in
--   partition 0.
-- Parts: prelude
-- Flags: allow-oom
-- KEYS 1 meta
-- ARGV 1 wire version, 2 number of partitions, 3 wake-up channel,
--   4 revision of the caller's policy, 5 this policy
-- Returns: secs, micros, revision and policy that apply now
-- Invariants: A policy is replaced only by one of a higher revision.

local stored = redis.call('HMGET', KEYS[1], 'revision', 'policy')
if not stored[2] or (tonumber(stored[1] or '') or 0) < tonumber(ARGV[4]) then
  stored = { ARGV[4], ARGV[5] }
  redis.call('HSET', KEYS[1], 'revision', stored[1], 'policy', stored[2])
end
return { secs, micros, stored[1] or '0', stored[2] }
