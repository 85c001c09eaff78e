/* The public header, in C and in C++. */
#include "reweight.h"

#include <stdio.h>
#include <string.h>

int main(void) {
	reweight_row_gradient_options gradient = REWEIGHT_DEFAULT_ROW_GRADIENT;
	reweight_actfocus_options actfocus = REWEIGHT_DEFAULT_ACTFOCUS;
	reweight_aem_options aem = REWEIGHT_DEFAULT_AEM;
	reweight_grpo_options grpo = REWEIGHT_DEFAULT_GRPO;
	reweight_gae_options gae = REWEIGHT_DEFAULT_GAE;
	reweight_loss_options loss = REWEIGHT_DEFAULT_LOSS;
	printf("%g %g, %g %g %g %d, %g %g %d, %g %d, %g %g, %g %g %g %d %d\n", gradient.temperature, gradient.entropy_bonus,
	       actfocus.alpha, actfocus.beta, actfocus.eps, actfocus.signal, aem.lambda, aem.guard, aem.scope, grpo.eps,
	       grpo.divide_by_std, gae.gamma, gae.lambda, loss.clip_low, loss.clip_high, loss.dual_clip,
	       (int)loss.norm_length, loss.aggregation);

	/* What this machine has, in one line each. Without a name, and by a wrong number. */
	for (int32_t isa = -1; isa < 6; isa++) printf("%d %s %d\n", isa, reweight_isa_name(isa), reweight_has_isa(isa));
	printf("best %d, version %s\n", reweight_best_isa(), reweight_version());

	float logits[] = {1, 2, 3}, lse[1];
	reweight_rows rows;
	memset(&rows, 0, sizeof rows);
	rows.data = logits;
	rows.rows = 1;
	rows.vocab = 3;
	reweight_stats stats;
	memset(&stats, 0, sizeof stats);
	stats.lse = lse;
	for (int32_t isa = -1; isa < 6; isa++) {
		reweight_workspace ws;
		memset(&ws, 0, sizeof ws);
		ws.isa = isa;
		reweight_error error;
		lse[0] = 0;
		int code = reweight_token_stats(&ws, &stats, &rows, NULL, 1, &error);
		if (code == REWEIGHT_OK) {
			printf("lse %.9g\n", lse[0]);
		} else {
			printf("code %d: %u, %u, %d: %d %d\n", code, error.code, error.argument, (int)error.index, (int)error.values[0],
			       (int)error.values[1]);
		}
	}
	return 0;
}
