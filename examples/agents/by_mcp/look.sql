-- The service that fails without a failing callee. Rows: service, fault kind, the caller that it harms (none: it is the root),
-- what is claimed, and SQL that shows it again.
SELECT service_name, 'http_response_status_modified', NULL, 'its spans fail',
       $$SELECT count(*) FROM abnormal_traces WHERE "attr.status_code" = 'Error' AND service_name = '$$ || service_name || $$'$$
FROM abnormal_traces
WHERE "attr.status_code" = 'Error' AND service_name <> 'loadgenerator'
AND span_id NOT IN (SELECT parent_span_id FROM abnormal_traces WHERE "attr.status_code" = 'Error')
GROUP BY service_name ORDER BY count(*) DESC, service_name LIMIT 1
