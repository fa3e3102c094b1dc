-- What PostgreSQL is asked for: step('sleep', 8), and so on. Gives back lines of what,ms,begin,end in microseconds of
-- clock_timestamp(). `lock` is an advisory lock that all sessions share.
create function us(at timestamptz) returns bigint language sql immutable
as $$ select (extract(epoch from at) * 1000000)::bigint $$;

create function step(what text, ms int) returns text language plpgsql as $$
declare
    begun timestamptz := clock_timestamp();
    asked timestamptz;
    had timestamptz;
    told text := '';
begin
    if what = 'sleep' then
        perform pg_sleep(ms / 1000.0);
    elsif what = 'burn' then
        while clock_timestamp() < begun + ms * interval '1 ms' loop
        end loop;
    else
        asked := begun;
        perform pg_advisory_lock(1);
        begun := clock_timestamp();
        perform pg_sleep(ms / 1000.0);
        had := clock_timestamp();
        perform pg_advisory_unlock(1);
        told := format(E'lockwait,0,%s,%s\n', us(asked), us(begun));
    end if;
    return told || format(E'%s,%s,%s,%s\n', what, ms, us(begun), us(coalesce(had, clock_timestamp())));
end $$;
