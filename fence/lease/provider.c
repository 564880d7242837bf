/* SPDX-License-Identifier: Apache-2.0 */
/* The provider interface: calls go through the implementer's table. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "fence/base/check.h"
#include "fence/lease/provider_impl.h"

/* Two clocks that count milliseconds do not begin each one at the same moment, so of the same time
 * one may count a millisecond more. */
#define ROUNDING_MS 1

void lease_ask(struct lease_provider *provider, struct lease_call *call)
{
    check(call->resource.len > 0 && call->done != NULL);
    check(call->verb != LEASE_GRANT || (call->ttl_ms > 0 && call->floor >= 0));
    check(call->verb != LEASE_RELEASE || call->token != 0 || call->attempt != 0);
    check(call->verb != LEASE_INHERIT || provider->impl->relies_on_store);
    if (call->verb != LEASE_RELEASE)
        call->attempt = 0;
    call->answer = LEASE_UNANSWERED;
    call->answer_token = call->answer_ttl_ms = call->answer_until_ms = 0;
    call->rounding_ms = provider->impl->own_clock ? 0 : ROUNDING_MS;
    call->reason[0] = '\0';
    list_init(&call->link);
    provider->calls++;
    if (provider->impl->ask(provider, call))
        lease_answered(provider, call);
}

void lease_answered(struct lease_provider *provider, struct lease_call *call)
{
    check(call->answer != LEASE_UNANSWERED);
    provider->failures += call->answer == LEASE_DOWN;
    call->done(call);
}

void lease_provider_watch(struct lease_provider *provider,
                          void (*on_news)(void *context, const struct lease_news *news),
                          void *context)
{
    provider->on_news = on_news;
    provider->news_context = context;
    if (provider->impl->watch != NULL)
        provider->impl->watch(provider);
}

void lease_tell(struct lease_provider *provider, const struct lease_news *news)
{
    if (provider->on_news == NULL)
        return;
    provider->news++;
    provider->on_news(provider->news_context, news);
}

struct lease_health lease_provider_health(const struct lease_provider *provider)
{
    struct lease_health health = {
        .calls = provider->calls, .failures = provider->failures, .news = provider->news};

    provider->impl->health(provider, &health);
    return health;
}

bool lease_provider_relies_on_store(const struct lease_provider *provider)
{
    return provider->impl->relies_on_store;
}

void lease_on_first_attempt(struct lease_provider *provider, void (*ended)(void *context),
                            void *context)
{
    if (provider->impl->on_first_attempt != NULL)
        provider->impl->on_first_attempt(provider, ended, context);
    else
        ended(context);
}

const char *lease_provider_name(const struct lease_provider *provider)
{
    return provider->impl->name;
}

void lease_provider_close(struct lease_provider *provider, void (*closed)(void *context),
                          void *context)
{
    provider->closed = closed;
    provider->closed_context = context;
    provider->impl->close(provider);
}

void lease_provider_closed(struct lease_provider *provider)
{
    void (*closed)(void *context) = provider->closed;
    void *context = provider->closed_context;

    free(provider);
    closed(context);
}

bool lease_answer(struct lease_call *call, enum lease_answer answer, int64_t token, int64_t ttl_ms)
{
    check(call->answer == LEASE_UNANSWERED);
    call->answer = answer;
    call->answer_token = token;
    call->answer_ttl_ms = ttl_ms;
    call->answer_until_ms = call->asked_ms + ttl_ms - call->rounding_ms;
    return true;
}

int64_t lease_left_ms(const struct lease_call *call, int64_t now_ms)
{
    int64_t left_ms = call->answer_until_ms - now_ms;
    return left_ms < 0 ? 0 : left_ms;
}

bool lease_answer_down(struct lease_call *call, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(call->reason, sizeof call->reason, format, args);
    va_end(args);
    return lease_answer(call, LEASE_DOWN, 0, 0);
}
