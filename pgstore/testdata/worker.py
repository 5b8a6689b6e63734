# A worker that knows nothing but two functions of the database. It increments a
# counter in two steps, under a lock, and says how often it has done so.
#
#   worker.py CONNECTION SCHEMA HOLDER ROUNDS
import sys
import time

import psycopg

connection, schema, holder, rounds = sys.argv[1:4] + [int(sys.argv[4])]
with psycopg.connect(connection, autocommit=True) as db:
    db.execute(f'SET search_path TO "{schema}"')

    def call(statement, *values):
        return db.execute(statement, values).fetchone()[0]

    for _ in range(rounds):
        while not call("SELECT acquire_lock(%s::text, %s::text, %s::double precision, %s::jsonb)", "counter", holder, 30.0, '{"language": "python"}'):
            time.sleep(0.003)
        value = call("SELECT value FROM counter")
        db.execute("UPDATE counter SET value = %s", (value + 1,))
        if not call("SELECT release_lock(%s::text, %s::text)", "counter", holder):
            sys.exit("the lock was lost")
