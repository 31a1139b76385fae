// BullMQ: job queues for Node on Redis.
//
// A worker holds a lock on each job; a job whose lock has run out is found by a check for stalled jobs, and
// runs again. Delayed jobs have times in milliseconds. Settings by its documentation: concurrency for
// handlers that wait (https://docs.bullmq.io/guide/workers/concurrency), removal of completed jobs
// (https://docs.bullmq.io/guide/queues/auto-removal-of-jobs), and stalled jobs with their default lock of
// 30 s and a check every 30 s (https://docs.bullmq.io/guide/jobs/stalled).

import { createRequire } from 'node:module';

import { main } from './measures.mjs';

const installed = createRequire(new URL('./.installed/', import.meta.url));
const { Queue, Worker } = installed('bullmq');
const { Redis } = installed('ioredis');

const NAME = 'bench';

class BullMq {
  bulk = 1_000;
  // It handles some 30,000 a second where nothing else runs, and far fewer where something does.
  atMost = 30_000;

  static describe() {
    return {
      name: 'BullMQ',
      version: '6.7.0',
      language: 'Node',
      settings:
        'ioredis 6.0.0; concurrency as asked for; removeOnComplete, so that jobs leave Redis; lock and check for stalled ' +
        'jobs 30 s (defaults); one process; bulk is addBulk by 1,000; jobs that are due, and the 30,000 of throughput ' +
        'thus, are added without a delay',
      survives_a_crash: true,
      leaves_out: '',
    };
  }

  static async connect({ url }) {
    return new BullMq(url);
  }

  constructor(url) {
    this.url = url;
    this.queue = new Queue(NAME, {
      connection: new Redis(url, { maxRetriesPerRequest: null }),
      defaultJobOptions: { removeOnComplete: true },
    });
  }

  async offer({ due, payload }) {
    await this.queue.add(NAME, payload, { delay: delay(due) });
  }

  async offerAndWithdraw({ due, payload }) {
    const job = await this.queue.add(NAME, payload, { delay: delay(due) });
    await job.remove();
  }

  async offerBulk(jobs) {
    await this.queue.addBulk(jobs.map(({ due, payload }) => ({ name: NAME, data: payload, opts: { delay: delay(due) } })));
  }

  async work(concurrency, handle) {
    const connection = new Redis(this.url, { maxRetriesPerRequest: null });
    const worker = new Worker(NAME, async (job) => handle(job.data), { connection, concurrency });
    worker.on('error', (error) => console.error(error));
    await worker.waitUntilReady();
  }
}

function delay(due) {
  return Math.max(due - Date.now(), 0);
}

await main(BullMq);
