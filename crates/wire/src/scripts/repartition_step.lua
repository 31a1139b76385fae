-- repartition_step.lua: Do one step of a change to another number of partitions.
--
-- Purpose: An operator changes the number of partitions of a topic, and a coordinator takes each partition through pause
--   (open -> paused), close (paused -> repartitioning), share and open (repartitioning -> open, with the new number). The
--   steps 'resume' and 'clean_up' go back (paused or repartitioning -> open).
-- Parts: (none)
-- Flags: allow-oom
-- KEYS 1 meta, 2 tombstones, 3 claimers, 4 journal
-- ARGV 1 wire version, 2 number of partitions, 3 wake-up channel, 4 'ask' to change nothing, 'pause' and 'resume' to stop
--   claims and to allow them again, 'close', 'share', 'open', or 'clean_up' to undo steps of a change that has ended, 5 new
--   number of partitions, 6 index of the partition, 7 ID of the caller, under which it pauses (8 bytes), 8 the ID under
--   which partition 0 is closed (8 bytes), 9 to share: why another partition was paused (or ''), 10 its index, 11 how many
--   dead letters it has trimmed
-- Returns: 1 if the step is done, else 0; 'none', 'open', 'paused', 'closed' or 'destroying'; number of partitions; new
--   number, or 0; kind; the ID under which it is closed (or ''); why it was paused before (or ''); how many dead letters
--   were trimmed; the most partitions that the topic has had; for how long it has been closed, in ms
-- Errors: WIREVERSION (nothing was written)
-- Invariants: Only the caller that has paused partition 0 closes it, and the ID under which it is closed never changes. No
--   other partition is closed if it was resumed after its pause. A closed partition is opened only under its ID. A repeat of
--   a step that was done is answered 1, but a repeat of 'resume' 0.

local meta, tombstones, claimers, journal = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local version, old_count, step, new_count, index = ARGV[1], ARGV[2], ARGV[4], ARGV[5], tonumber(ARGV[6])
local caller_id, closing_id = ARGV[7], ARGV[8]
local REASON = 'it is getting another number of partitions'
local found = redis.call('HMGET', meta, 'v', 'partitions', 'kind', 'paused', 'target_partitions', 'repartition_id',
  'paused_before', 'trimmed', 'max_partitions', 'closed_at')
local stored_version, stored_count, paused, stored_target, stored_id = found[1], found[2], found[4], found[5], found[6]
local open, closed = stored_version == version, stored_version == 'repartitioning'
-- Why others had paused the partition, or ''. False if no repartition pauses it, or if it was resumed since.
local paused_before = (paused or closed) and found[7]
if stored_version and not open and not closed and stored_version ~= 'destroying' then
  return redis.error_reply('WIREVERSION ' .. KEYS[1] .. ' has wire version ' .. found[1] .. ', the caller ' .. ARGV[1])
end
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

-- Returns why others pause the partition: they did before this repartition has paused it, or have done so since.
local function other_reason()
  if paused == REASON or closed then return paused_before or '' end
  return paused or ''
end

local function resume(why)
  redis.call('HDEL', meta, 'target_partitions', 'repartition_id', 'paused_before', 'closed_at')
  if why == '' then redis.call('HDEL', meta, 'paused') else redis.call('HSET', meta, 'paused', why) end
  redis.pcall('SPUBLISH', ARGV[3], 'w0')
end

local function close()
  local max_partitions = math.max(tonumber(found[9] or '') or 0, tonumber(old_count), tonumber(new_count))
  redis.call('HSET', meta, 'paused_before', other_reason(), 'v', 'repartitioning', 'partitions', old_count,
    'target_partitions', new_count, 'repartition_id', closing_id, 'max_partitions', max_partitions)
  redis.call('HSETNX', meta, 'closed_at', now)
end

-- Adds what `share` has stored of partitions that go, once.
local function add_trimmed()
  local fields, sum = {}, tonumber(found[8] or '') or 0
  for other = index + tonumber(new_count), tonumber(old_count) - 1, tonumber(new_count) do
    local field = 'trimmed_' .. string.format('%.0f', other)
    local trimmed = redis.call('HGET', meta, field)
    if trimmed then
      fields[#fields + 1] = field
      sum = sum + tonumber(trimmed)
    end
  end
  if #fields > 0 then
    redis.call('HSET', meta, 'trimmed', sum)
    redis.call('HDEL', meta, unpack(fields))
  end
end

local function open_to(number)
  add_trimmed()
  local why = other_reason()
  -- The claimers of the old number are refused from now on, and must not count as leaders.
  redis.call('UNLINK', claimers)
  -- A partition beyond the new number keeps its meta, which refuses late callers with the old number.
  if index >= tonumber(number) then
    redis.call('UNLINK', tombstones)
    -- Callers of an earlier release do not pass the name.
    if journal then redis.call('UNLINK', journal) end
    redis.call('HDEL', meta, 'trimmed', 'journal', 'watched_until')
    why = ''
  end
  redis.call('HSET', meta, 'v', version, 'partitions', number)
  resume(why)
end

local paused_by_caller = open and stored_count == old_count and paused_before and stored_id == caller_id
local steps, done = {}, false

function steps.pause()
  if open and stored_count == old_count and not (index == 0 and paused_before and stored_target ~= new_count) then
    redis.call('HSET', meta, 'paused_before', other_reason(), 'paused', REASON, 'target_partitions', new_count,
      'repartition_id', caller_id)
    return true
  end
  return not stored_version
end

function steps.resume()
  if paused_by_caller then resume(other_reason()) end
  return paused_by_caller
end

function steps.close()
  if closed and index == 0 then return stored_target == new_count end
  if closed then return stored_id == closing_id end
  if paused_by_caller or index > 0 and not stored_version then
    close()
    return true
  end
end

function steps.share()
  if not closed or stored_id ~= closing_id then return false end
  if ARGV[9] ~= '' and (paused_before or '') == '' then redis.call('HSET', meta, 'paused_before', ARGV[9]) end
  if ARGV[11] ~= '0' then redis.call('HSET', meta, 'trimmed_' .. ARGV[10], ARGV[11]) end
  return true
end

function steps.open()
  if closed and stored_id == closing_id then
    open_to(new_count)
    return true
  end
  if not open or stored_count ~= new_count then return false end
  -- A change that has ended may have paused it since.
  if paused_before then resume(other_reason()) end
  return true
end

function steps.clean_up()
  if open and paused_before then resume(other_reason()) end
  if closed and stored_id == closing_id then open_to(old_count) end
  return true
end

if steps[step] then done = steps[step]() end
local after = redis.call('HMGET', meta, 'v', 'partitions', 'target_partitions', 'kind', 'repartition_id', 'paused_before',
  'trimmed', 'max_partitions', 'paused')
local state = 'none'
if after[1] == version then
  state = after[6] and after[9] and 'paused' or 'open'
elseif after[1] then
  state = after[1] == 'destroying' and after[1] or 'closed'
end
local closed_at = tonumber(found[10] or '') or now
return { done and 1 or 0, state, after[2] or '0', after[3] or '0', after[4] or 'managed',
  after[1] ~= version and after[5] or '', after[6] or '', after[7] or '0', after[8] or '0', now - closed_at }
