"""What a subscription remembers beside its position: redelivery counts, and very many holes."""
import time
import pulsar, pytest
from conftest import new_client, nothing, send_all, take

S = pulsar.ConsumerType.Shared


def subscribe(client, t, **kw): return client.subscribe(t, 's', consumer_type=S, negative_ack_redelivery_delay_ms=100, **kw)


def refuse(consumer, times):
    """Refuses the one message so often; it is with the consumer afterwards."""
    counts = []
    while len(counts) <= times:
        m = consumer.receive(10000); counts.append(m.redelivery_count())
        if len(counts) <= times: consumer.negative_acknowledge(m)
    assert counts == list(range(times + 1))


def test_redelivery_counts_survive_an_unload(client, topic, admin):
    t = topic('counts'); c = subscribe(client, t)
    client.create_producer(t).send(b'x')
    refuse(c, 3)
    admin.put(t.replace('://', '/') + '/unload')
    m = c.receive(10000)
    assert m.data() == b'x' and m.redelivery_count() == 3
    c.negative_acknowledge(m)
    m = c.receive(10000); assert m.redelivery_count() == 4
    c.acknowledge(m); nothing(c, 500)


@pytest.mark.restart
@pytest.mark.timeout(240)
def test_redelivery_counts_survive_a_kill(topic, restart):
    t = topic('counts'); c0 = new_client(); c = subscribe(c0, t)
    c0.create_producer(t).send(b'x')
    refuse(c, 3)
    time.sleep(3)                                           # counts alone are written once a second
    c0.close()
    restart()
    c1 = new_client()
    try:
        c = subscribe(c1, t); m = c.receive(10000)
        assert m.data() == b'x' and m.redelivery_count() == 3
        c.acknowledge(m); nothing(c, 500)
    finally: c1.close()


@pytest.mark.restart
@pytest.mark.timeout(240)
def test_more_than_twenty_thousand_holes_survive_a_kill(topic, restart):
    n = 44000; t = topic('holes'); c0 = new_client(); c = subscribe(c0, t)
    p = c0.create_producer(t, batching_enabled=False, block_if_queue_full=True)
    send_all(p, [b'%d' % i for i in range(n)])
    for m in take(c, n, 90, ack=False):
        if int(m.data()) % 2: c.acknowledge(m)
    c.close(); c0.close(); time.sleep(3)                    # close flushes the acknowledgements; positions may be written once a second
    restart()
    c1 = new_client()
    try:
        c = subscribe(c1, t)
        assert sorted(int(m.data()) for m in take(c, n // 2, 60)) == list(range(0, n, 2))
        nothing(c, 1000)
    finally: c1.close()
