package drivertest

import "github.com/holdfast-go/holdfast/driver"

// A bug is one way in which a store is broken.
type bug string

// A variant is a broken store and cases that fail because of it.
type variant struct {
	bug    bug
	claims driver.Guarantees // everything, unless given
	fails  string
}

var variants = []variant{
	{bug: "separate worlds", fails: `
		acquire/refusal-harmless concurrency/one-winner faults/silence-is-not-held renew/other-process
	`},
	{bug: "restart keeps holds", claims: restartFrees, fails: `faults/restart`},
	{bug: "restart forgets", fails: `faults/restart`},
	{bug: "restart breaks world", fails: `faults/restart tokens/rise-over-restart`},
	{bug: "tokens fall at restart", fails: `
		queue/floor-too-far renew/token tokens/floor-of-a-refusal tokens/rise-over-restart
	`},
	{bug: "crash frees at once", fails: `faults/crash`},
	{bug: "crash frees everything", fails: `detached/outlives-process detached/outlives-renewer faults/crash queue/crash`},
	{bug: "crash frees nothing", claims: crashFrees, fails: `faults/crash`},
	{bug: "severed store is dead", fails: `faults/place-severed faults/severed`},
	{bug: "close does nothing", fails: `closing/later-calls`},
	{bug: "ignores contexts", fails: `contexts/ended-before`},
	{bug: "closed calls hang", fails: `closing/later-calls closing/under-way`},
	{bug: "calls outlast deadlines", fails: `faults/silence`},
	{bug: "list outlasts deadlines", fails: `faults/silence`},
	{bug: "says not applied", fails: `
		faults/acquire-reply-lost faults/keep-reply-lost faults/release-reply-lost faults/renew-reply-lost
	`},
	{bug: "client clock", fails: `expiry/store-clock`},
	{bug: "never expires", fails: `
		acquire/refusal-does-not-prolong renew/batch-each-its-ttl renew/ends renew/late-with-successor
	`},
	{bug: "folds case", fails: `list/held-names names/odd names/odd-records`},
	{bug: "truncates names", fails: `names/long names/odd names/odd-records`},
	{bug: "hashes names", fails: `list/held-names list/literal-prefix list/many`},
	{bug: "trims names", fails: `names/odd names/odd-records`},
	{bug: "compares prefix", fails: `acquire/owner-compared-whole release/not-the-owner renew/not-the-owner`},
	{bug: "compares folded", fails: `acquire/owner-compared-whole release/not-the-owner renew/not-the-owner`},
	{bug: "expires early", fails: `expiry/not-early keep/longer-than-TTL keep/shorter-than-TTL queue/granted-at-once`},
	{bug: "expires late", fails: `lookup/times renew/after-expiry renew/ends tokens/several`},
	{bug: "coarse ends early", claims: coarse, fails: `
		detached/expires expiry/not-early keep/longer-than-TTL keep/shorter-than-TTL
	`},
	{bug: "expires late", claims: coarse, fails: `
		acquire/refusal-does-not-prolong concurrency/one-heir expiry/longest renew/batch-each-its-ttl
	`},
	{bug: "rounds to seconds", fails: `concurrency/one-heir expiry/not-late renew/after-expiry renew/ends`},
	{bug: "underclaims remaining", fails: `acquire/refusal-remaining expiry/longest renew/keeps-token lookup/held-name`},
	{bug: "ended calls apply", fails: `contexts/cancel-storm contexts/ended-acquire`},
	{bug: "lost means answered", fails: `faults/acquire-request-lost`},
	{bug: "changes metadata", fails: `acquire/refusal-record metadata/of-this-hold queue/request`},
	{bug: "grants nothing", fails: `faults/acquire-request-lost faults/secret guarantees/stable renew/batch-large`},
	{bug: "checks then sets", fails: `
		concurrency/exclusion concurrency/one-heir concurrency/one-winner concurrency/repetitions
	`},
	{bug: "keep lets owner take", fails: `claims/kept keep/taken`},
	{bug: "forgets repetitions", fails: `acquire/repetition acquire/repetition-prolongs faults/acquire-reply-lost`},
	{bug: "drops metadata", fails: `metadata/largest metadata/lasts metadata/of-this-hold metadata/round-trip`},
	{bug: "keeps metadata unclaimed", claims: without(metadata), fails: `metadata/unclaimed`},
	{bug: "inherits metadata", fails: `metadata/of-this-hold`},
	{bug: "inherits expiry", fails: `expiry/not-early expiry/not-late expiry/store-clock lookup/free-name`},
	{bug: "repetition does not prolong", fails: `acquire/repetition-prolongs claims/hold`},
	{bug: "repetition shortens", fails: `acquire/repetition-prolongs claims/hold queue/renew-after-admission`},
	{bug: "repetition changes token", fails: `
		acquire/repetition concurrency/repetitions tokens/floor-of-a-repetition tokens/several-of-a-repetition
	`},
	{bug: "repetition takes floor", fails: `tokens/floor-of-a-repetition`},
	{bug: "tokens unclaimed", claims: without(fencing), fails: `
		acquire/held-name closing/twice contexts/ended-before contexts/secret
	`},
	{bug: "overclaims fencing", fails: `contexts/ended-before contexts/secret faults/acquire-request-lost faults/secret`},
	{bug: "ignores floor", fails: `queue/request tokens/floor-lasts tokens/several-ahead`},
	{bug: "forgets floor", fails: `tokens/floor-lasts tokens/several-ahead`},
	{bug: "takes any floor", fails: `tokens/floor-too-far`},
	{bug: "refused floor takes", fails: `tokens/floor-too-far`},
	{bug: "refused floor raises token", fails: `tokens/floor-too-far`},
	{bug: "refuses every floor", fails: `tokens/floor-lasts tokens/several-ahead`},
	{bug: "refuses floor of repetition", fails: `tokens/floor-of-a-repetition`},
	{bug: "tokens fall at expiry", fails: `tokens/floor-lasts tokens/several`},
	{bug: "tokens fall at release", fails: `closing/anew concurrency/exclusion queue/exclusion tokens/rise-over-release`},
	{bug: "tokens too large", fails: `acquire/held-name closing/notices closing/twice names/long`},
	{bug: "tokens per store", fails: `closing/anew tokens/rise-over-release tokens/rise-over-restart tokens/several`},
	{bug: "tokens too many", fails: `claims/hold renew/token tokens/rise-over-break tokens/several`},
	{bug: "tokens not reserved", fails: `
		queue/several tokens/rise-over-break tokens/several tokens/several-of-a-repetition
	`},
	{bug: "tokens of repetition", fails: `claims/hold queue/notified-once queue/several tokens/several-of-a-repetition`},
	{bug: "tokens run ahead", fails: `tokens/several-ahead`},
	{bug: "refusal prolongs", fails: `
		acquire/refusal-does-not-prolong acquire/refusal-remaining expiry/longest queue/granted-at-once
	`},
	{bug: "refusal raises token", fails: `queue/floor-too-far tokens/floor-of-a-refusal`},
	{bug: "refusal takes over", fails: `acquire/two-processes closing/other-stores faults/severed release/one-name-only`},
	{bug: "busy is an error", fails: `acquire/held-name concurrency/one-winner renew/prolongs`},
	{bug: "refusal leaks owner", fails: `acquire/refusal-record acquire/secret keep/refusal`},
	{bug: "refusal says nothing", fails: `acquire/refusal-remaining queue/first queue/keep`},
	{bug: "refusal names others", fails: `acquire/refusal-record keep/refusal`},
	{bug: "errors leak owner", fails: `contexts/secret faults/secret`},
	{bug: "batch uses first TTL", fails: `queue/renew renew/batch-each-its-ttl`},
	{bug: "batch is cut", fails: `renew/batch-large`},
	{bug: "batch out of order", fails: `renew/batch-in-order`},
	{bug: "renew revives expired", fails: `claims/nothing renew/after-expiry renew/batch-in-order`},
	{bug: "renew takes free", fails: `break/one-name-only concurrency/renew-and-release notices/lost renew/batch-in-order`},
	{bug: "keep lets owner renew", fails: `keep/no-renewal`},
	{bug: "renew forgets owner", fails: `
		break/victim-with-successor renew/batch-in-order renew/late-with-successor renew/not-the-owner
	`},
	{bug: "renew on own store only", fails: `
		detached/handed-over detached/outlives-renewer faults/restart renew/other-process
	`},
	{bug: "renew does nothing", fails: `faults/renew-reply-lost renew/keeps-token renew/prolongs`},
	{bug: "renew shortens", fails: `renew/prolongs`},
	{bug: "renew changes token", fails: `renew/keeps-token`},
	{bug: "renew drops metadata", fails: `metadata/lasts`},
	{bug: "underclaims keep", claims: without(keep), fails: `keep/unclaimed`},
	{bug: "overclaims keep", fails: `keep/repeated keep/repeated-too-late keep/taken`},
	{bug: "refused keep releases", claims: without(keep), fails: `keep/unclaimed`},
	{bug: "release always true", fails: `
		faults/release-reply-lost release/late-with-successor release/not-the-owner release/second-with-successor
	`},
	{bug: "keep freed by anyone", fails: `faults/keep-reply-lost keep/repeated keep/taken`},
	{bug: "release forgets owner", fails: `
		break/victim-with-successor faults/release-reply-lost release/late-with-successor
		release/second-with-successor
	`},
	{bug: "keep not repeatable", fails: `faults/keep-reply-lost keep/repeated`},
	{bug: "release by owner ends all", fails: `release/one-name-only`},
	{bug: "ignores keep", fails: `break/kept-name keep/repeated keep/taken`},
	{bug: "releases late", fails: `concurrency/renew-and-release contexts/cancel-storm release/frees release/in-order`},
	{bug: "release does nothing", fails: `contexts/ended-acquire release/frees release/in-order shared/unclaimed`},
	{bug: "keep only lengthens", fails: `claims/kept keep/no-renewal keep/repeated-too-late keep/shorter-than-TTL`},
	{bug: "keep only shortens", fails: `keep/longer-than-TTL`},
	{bug: "keep is not marked", fails: `break/kept-name keep/no-renewal keep/taken list/kept-names`},
	{bug: "keep names holder", fails: `keep/refusal list/kept-names`},
	{bug: "underclaims detached", claims: without(detached), fails: `detached/unclaimed`},
	{bug: "refused detached takes", claims: without(detached), fails: `detached/unclaimed`},
	{bug: "overclaims detached", fails: `
		detached/expires detached/handed-over detached/outlives-process detached/outlives-renewer
	`},
	{bug: "detached never expires", fails: `detached/expires`},
	{bug: "close ends detached", fails: `detached/outlives-store`},
	{bug: "crash ends detached", claims: crashFrees, fails: `detached/outlives-process`},
	{bug: "renewal attaches", claims: crashFrees, fails: `detached/outlives-renewer`},
	{bug: "underclaims lookup", claims: without(lookup), fails: `guarantees/no-lookup`},
	{bug: "lookup always finds", claims: without(lookup), fails: `guarantees/no-lookup`},
	{bug: "lookup never finds", claims: without(lookup), fails: `guarantees/no-lookup`},
	{bug: "lookup shows expired", fails: `lookup/free-name`},
	{bug: "lookup shows nobody", fails: `lookup/free-name`},
	{bug: "lookup prolongs", fails: `renew/keeps-token lookup/held-name lookup/times queue/request`},
	{bug: "lookup leaks owner", fails: `lookup/held-name metadata/largest metadata/lasts metadata/round-trip`},
	{bug: "overclaims lookup", fails: `lookup/times metadata/largest metadata/round-trip renew/keeps-token`},
	{bug: "underclaims list", claims: without(list), fails: `guarantees/no-list`},
	{bug: "overclaims list", fails: `closing/later-calls list/broken-off list/calls-meanwhile list/gone-names`},
	{bug: "list blocks calls", fails: `list/calls-meanwhile`},
	{bug: "broken list hangs", fails: `list/broken-off`},
	{bug: "list yields twice", fails: `acquire/secret list/gone-names list/literal-prefix list/many`},
	{bug: "list shows expired", fails: `list/gone-names`},
	{bug: "list leaks owner", fails: `acquire/secret list/held-names list/kept-names names/odd-records`},
	{bug: "list hides kept", fails: `list/kept-names`},
	{bug: "list is cut", fails: `list/many names/odd-records`},
	{bug: "list ignores prefix", fails: `list/held-names list/literal-prefix`},
	{bug: "list ignores case", fails: `list/held-names`},
	{bug: "list takes patterns", fails: `list/literal-prefix`},
	{bug: "underclaims break", claims: without(breaking), fails: `guarantees/no-break`},
	{bug: "overclaims break", fails: `break/free-name break/held-name break/victim-with-successor notices/lost`},
	{bug: "break spares kept", fails: `break/kept-name`},
	{bug: "break always true", fails: `break/free-name break/token queue/break`},
	{bug: "break leaks owner", fails: `acquire/secret break/held-name break/token queue/break`},
	{bug: "break by prefix", fails: `break/one-name-only`},
	{bug: "break resets token", fails: `tokens/rise-over-break`},
	{bug: "break does nothing", fails: `break/held-name break/kept-name break/one-name-only break/victim-with-successor`},
	{bug: "break ignores token", fails: `break/other-token`},
	{bug: "break spares token", fails: `break/token queue/break`},
	{bug: "break ends lower", fails: `break/other-token`},
	{bug: "break takes later tokens", fails: `break/other-token`},
	{bug: "break shows other", fails: `break/other-token`},
	{bug: "break of other is true", fails: `break/other-token`},
	{bug: "busy is no retry", fails: `faults/busy`},
	{bug: "busy applies", fails: `faults/busy`},
	{bug: "busy forgets when", fails: `faults/busy`},
	{bug: "busy is held", fails: `faults/busy`},
	{bug: "remembers held", fails: `faults/silence-is-not-held`},
	{bug: "releases by first TTL", fails: `detached/handed-over renew/prolongs`},
	{bug: "occupied is granted", fails: `strangers/acquire strangers/lookup`},
	{bug: "occupied is shown", fails: `strangers/acquire strangers/list strangers/lookup`},
	{bug: "occupied has no bounds", fails: `strangers/acquire strangers/list strangers/lookup`},
	{bug: "occupied ends lists", fails: `strangers/list`},
	{bug: "guarantees vague", fails: `guarantees/complete`},
	{bug: "guarantees change", fails: `guarantees/stable`},
	{bug: "close fails twice", fails: `closing/twice`},
	{bug: "close breaks world", fails: `closing/anew closing/other-stores detached/outlives-store`},
	{bug: "close ends all holds", fails: `closing/other-stores detached/outlives-store`},
	{bug: "queues without notify", fails: `closing/notices notices/ends queue/exclusion queue/racing-release`},
	{bug: "keep admits", fails: `queue/keep`},
	{bug: "admits two", fails: `queue/exclusion queue/in-order queue/notified-once`},
	{bug: "place forgets request", fails: `queue/request`},
	{bug: "admission prolongs", fails: `queue/crash queue/end-of-a-place`},
	{bug: "notice of more tokens", fails: `queue/in-order queue/several`},
	{bug: "notifies twice", fails: `queue/notified-once`},
	{bug: "asks all places", fails: `queue/notified-once`},
	{bug: "attempt queues", fails: `
		acquire/refusal-harmless acquire/two-processes queue/no-overtaking tokens/floor-of-a-refusal
	`},
	{bug: "claim forgets places", fails: `claims/place faults/queue-reply-lost queue/first queue/keep`},
	{bug: "place takes any floor", fails: `queue/floor-too-far`},
	{bug: "place made late", fails: `queue/racing-release queue/repetition`},
	{bug: "repetition queues again", fails: `queue/repetition`},
	{bug: "places never end", fails: `queue/crash queue/end-of-a-place queue/expired-places queue/renew`},
	{bug: "claim does not prolong", fails: `claims/place`},
	{bug: "claim makes place", fails: `claims/nothing queue/end-of-a-place queue/expired-places queue/release`},
	{bug: "never first", fails: `queue/first queue/keep`},
	{bug: "every place is first", fails: `queue/first`},
	{bug: "serves latest", fails: `claims/place queue/expired-places queue/no-overtaking queue/repetition`},
	{bug: "renew forgets places", fails: `queue/expired-hold queue/in-order queue/keep queue/renew`},
	{bug: "renew token means place", fails: `queue/renew`},
	{bug: "release forgets places", fails: `faults/queue-reply-lost queue/first queue/release queue/waiting`},
	{bug: "interest needs old name", fails: `notices/again notices/keep notices/other-process notices/prolonged`},
	{bug: "interest never ends", fails: `notices/ends`},
	{bug: "interest is not prolonged", fails: `notices/prolonged`},
	{bug: "interest begins late", fails: `notices/again notices/every-listener notices/keep`},
	{bug: "waiting leaks", fails: `closing/notices notices/ends notices/keep notices/prolonged`},
	{bug: "asks own store only", fails: `faults/notices-severed notices/other-process notices/racing-release`},
	{bug: "drops asks", fails: `notices/again notices/racing-release`},
	{bug: "asks once", fails: `faults/notices-severed notices/again notices/every-listener`},
	{bug: "asks one waiter", fails: `notices/other-process notices/racing-release`},
	{bug: "keep is silent", fails: `queue/keep`},
	{bug: "one listener", fails: `notices/every-listener`},
	{bug: "stop does nothing", fails: `notices/every-listener`},
	{bug: "severed is silent", fails: `faults/notices-severed faults/place-severed`},
	{bug: "severed stays cut", fails: `faults/notices-severed faults/place-severed`},
	{bug: "ignores limits", fails: `shared/unclaimed`},
	{bug: "claim unclaimed", claims: without(fair), fails: `claims/unclaimed`},
	{bug: "newcomers overtake", fails: `faults/queue-reply-lost queue/expired-hold queue/no-overtaking queue/waiting`},
	{bug: "claim takes free", fails: `claims/nothing queue/release queue/renew`},
	{bug: "claim revives kept", fails: `claims/kept`},
	{bug: "grant lasts queue", fails: `queue/granted-at-once`},
	{bug: "break ends places", fails: `queue/break`},
	{bug: "release does not ask", fails: `notices/again notices/prolonged notices/racing-release`},
	{bug: "break does not ask", fails: `notices/other-process`},
	{bug: "keep does not ask", fails: `notices/keep`},
	{bug: "renew does not settle", fails: `queue/expired-hold`},
	{bug: "renew ignores token", fails: `renew/token`},
	{bug: "admitted is not prolonged", fails: `queue/renew-after-admission`},
	{bug: "waiting counts hold", fails: `queue/waiting`},
	{bug: "crashed places stay", fails: `queue/crash`},
	{bug: "release is reported lost", fails: `notices/lost queue/notified-once`},
}
