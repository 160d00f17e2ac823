"""A client whose service URL is that of REST: topics are looked up over HTTP."""
import pulsar
from conftest import ADMIN_URL, take


def http_client(): return pulsar.Client(ADMIN_URL, operation_timeout_seconds=15, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))


def test_messages_flow_after_lookup_over_http(topic):
    client = http_client()
    t = topic('http')
    c = client.subscribe(t, 's'); p = client.create_producer(t)
    for i in range(5): p.send(b'%d' % i)
    assert [m.data() for m in take(c, 5)] == [b'%d' % i for i in range(5)]
    client.close()


def test_partitions_and_patterns_over_http(topic, admin):
    client = http_client()
    t = topic('http-parts'); admin.partitions(t, 3)
    assert len(client.get_topic_partitions(t)) == 3
    import re
    c = client.subscribe(re.compile(re.escape(t) + '.*'), 's'); p = client.create_producer(t)
    for i in range(6): p.send(b'%d' % i)
    assert sorted(m.data() for m in take(c, 6)) == [b'%d' % i for i in range(6)]
    client.close()
