WITH waiting AS (
    SELECT job.id, job.priority, agents.owner_id AS owner, cells.id = ANY(:cells) AS is_new
    FROM procrastinate_jobs AS job
    JOIN cells ON cells.id = job.args->>'cell'
    JOIN benchmarks ON benchmarks.id = cells.benchmark_id
    JOIN agents ON agents.id = benchmarks.agent_id
    WHERE job.task_name = :task AND job.status = 'todo'
), ahead AS (
    SELECT owner, LEAST(
        COALESCE((SELECT MAX(priority) FROM waiting WHERE NOT is_new), 0),
        COALESCE(MIN(priority) FILTER (WHERE NOT is_new) - 1, 0)
    ) AS first FROM waiting GROUP BY owner
), placed AS (
    SELECT id, first + 1 - ROW_NUMBER() OVER (PARTITION BY owner ORDER BY id) AS priority
    FROM waiting JOIN ahead USING (owner) WHERE is_new
)
UPDATE procrastinate_jobs AS job SET priority = placed.priority FROM placed WHERE job.id = placed.id
